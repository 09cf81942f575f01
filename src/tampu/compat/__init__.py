"""The surfaces of other packages over tampu."""
