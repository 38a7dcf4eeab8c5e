"""Pictures of measured rows, each drawn from a list of numbers that is made, and tested, without matplotlib."""

SPAN = 0.2  # DSC that an axis shows at most: a method that failed would flatten the others
