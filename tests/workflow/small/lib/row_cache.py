import os


class RowCache:
    code = os.environ.get("CALIBRATION_CODE")
