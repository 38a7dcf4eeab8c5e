"""Which patients to label next: what the network is unsure of (`uncertainty`), what is unlike the labelled patients
(`embeddings`), both weighed against each other (`choose`), and the reason in words (`reasons`).
"""
