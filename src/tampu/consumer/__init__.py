"""From the stream to the handler and back."""
