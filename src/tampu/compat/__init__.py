"""Other packages' interfaces on top of tampu."""
