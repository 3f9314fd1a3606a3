"""The kinds of agent: one file a kind, over one verb (`base.Adapter.invoke`)."""
