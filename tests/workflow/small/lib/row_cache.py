import os


class RowCache:
    code = os.environ.get("CALIBRATION_CODE")


def digest_responses(generations):
    return {}


def measured_facts(*caches):
    return {}
