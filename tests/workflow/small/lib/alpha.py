from lib import beta  # a comment


def words(model, dataset, seed):
    return beta.join([model, dataset, str(seed)])
