def paper_facts():
    return {"twice": []}
