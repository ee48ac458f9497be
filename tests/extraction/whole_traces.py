"""Traces in which every block stands for itself."""


def traced_step(key, family):
    """The traced step of one device, no block left out."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    from GraphExtractor.extract import build_model, trace_model
    from GraphExtractor.replication import every_block

    fake = FakeTensorMode(allow_non_fake_inputs=True)
    model = build_model(key, family, fake)
    modules = family.layer_modules(model)
    chosen = {stack: every_block(model.get_submodule(stack)) for stack in modules.stacks}
    return trace_model(key, family, modules, chosen, model, fake)
