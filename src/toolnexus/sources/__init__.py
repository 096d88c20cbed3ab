"""Where tools come from. Each source makes `Tool` values; nothing else in the library knows how."""
