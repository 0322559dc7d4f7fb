"""The root over a model's weights, in both versions, and the programs that hash a large model's rows."""
