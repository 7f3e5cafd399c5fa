"""The main job on real data, from text to a trained model on uneven workers: `python -m hapdsl.demo`."""
