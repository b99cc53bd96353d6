"""The rules, by area. Importing `every` registers them all."""
