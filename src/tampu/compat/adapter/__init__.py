"""What stands behind `tampu.compat.chasquimq`: its calls, as calls to tampu."""
