"""The explorer's widgets. They show state and post messages; none of them works anything out."""
