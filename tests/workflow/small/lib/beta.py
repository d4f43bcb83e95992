join = " ".join
