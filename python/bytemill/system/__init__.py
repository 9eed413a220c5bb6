"""Operating-system services: atomic files, locks, paths, memory, units."""
