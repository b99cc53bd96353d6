"""What can be bought, how, and for how much money."""
