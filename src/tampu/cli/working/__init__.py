"""What `tampu worker` is made of: one process at work, and the one that looks after several."""
