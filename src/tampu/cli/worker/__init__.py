"""`tampu worker`: one process that runs the tasks of an app, or a supervisor of several."""
