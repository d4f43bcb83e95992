"""The sentences of the word problems and of their solutions, with names, things and numbers left
open.

Each operation has several phrasings in the question and in the solution. So the model chooses among
words (token probabilities below one) independently of correctness.
"""

NAMES = (
    "Nora", "Omar", "Lily", "Hugo", "Ivan", "Maya", "Ruth", "Theo", "Anna", "Carl", "Dora", "Eric",
    "Fay", "Glen", "Iris", "Jack", "Kate", "Liam", "Mona", "Ned", "Olga", "Paul", "Rosa", "Sam",
)  # fmt: skip
THINGS = ("shells", "coins", "cards", "pens", "books", "stamps", "beads", "apples", "cups", "keys")

# ---- a growing collection

TOLD = {
    "+": (
        "{n} then finds {y} more.",
        "A friend gives {n} {y} more.",
        "Later {n} buys {y} more.",
        "Then {n} gets {y} more.",
    ),
    "-": (
        "{n} then gives away {y}.",
        "Later {n} loses {y} of them.",
        "Then {n} sells {y} of them.",
        "A friend takes {y} of them.",
    ),
    "*": (
        "By spring {n} has {y} times as many.",
        "Then the number grows to {y} times as many.",
        "A year later {n} has {y} times as many.",
    ),
}
LEADS = {
    "+": (
        "Adding these gives",
        "That makes",
        "With the new ones there are",
        "Now there are",
        "Together it is",
    ),
    "-": (
        "Without these it is",
        "That leaves",
        "After this there are",
        "What is left is",
        "Now there are",
    ),
    "*": (
        "Multiplying gives",
        "That makes",
        "As many times over there are",
        "Now there are",
        "Altogether it is",
    ),
}
STARTS = (
    "{n} has {x} {t}.",
    "{n} owns {x} {t}.",
    "At first {n} has {x} {t}.",
    "There are {x} {t} in the box of {n}.",
)
ASKS = (
    "How many {t} does {n} have now?",
    "How many {t} are there in the end?",
    "How many {t} does that make?",
)
BEFORE = (
    "How many {t} were there just before that?",
    "How many {t} did {n} have before the last change?",
)
CHANGED = {
    True: (
        "How many more {t} than at first is that?",
        "How many {t} more than at first does {n} have?",
    ),
    False: (
        "How many fewer {t} than at first is that?",
        "How many {t} fewer than at first does {n} have?",
    ),
}
CHANGE_LEADS = ("The change is", "Compared with the start that is")

# ---- a comparison of two people

COMPARED = {
    "+": ("{m} has {y} more than {n}.", "{m} owns {y} more {t} than {n}."),
    "-": ("{m} has {y} fewer than {n}.", "{m} owns {y} fewer {t} than {n}."),
    "*": ("{m} has {y} times as many as {n}.", "{m} owns {y} times as many {t} as {n}."),
}
JOINED = ("They put all of them into one box.", "They count all of them together.")
PARTS = ("How many {t} did {m} bring?", "How many of these {t} belong to {m}?")
TOGETHER = ("How many {t} do they have together?", "How many {t} do {n} and {m} have in all?")
ALONE = ("How many {t} does {m} have?", "How many {t} does {m} own?")


SECOND_LEADS = ("For the second that is", "The other has")
TOTAL_LEADS = ("Together they have", "In all that is")

# ---- a purchase

BOUGHT = (
    "{n} buys {y} boxes with {x} {t} in each.",
    "{n} fills {y} bags with {x} {t} in each.",
    "There are {y} rows of {x} {t} on the table of {n}.",
)


COUNT_LEADS = ("In all there are", "Counting them gives")
