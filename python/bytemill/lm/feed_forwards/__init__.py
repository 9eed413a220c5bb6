"""Feed-forward networks beside those of the textbook, each in a file of its own; named in `FEED_FORWARDS`."""
