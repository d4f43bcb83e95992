"""The process that carries out a notebook's cells, and what starts it: `python -m workflow.kernel -f CONNECTION_FILE`.

ipykernel listens on a port of this machine for what its own child processes print, even where all else goes through
sockets in a folder of the job's own. No notebook needs that, and on a shared machine others could write there.
"""

import os
import sys
from types import SimpleNamespace


def serve(options: list[str]) -> None:
    """What `python -m ipykernel_launcher` does, without listening to the network."""
    from ipykernel import kernelapp
    from ipykernel.iostream import IOPubThread

    kernelapp.IOPubThread = lambda socket, pipe, session: IOPubThread(socket, pipe=False, session=session)
    sys.argv = ["ipykernel_launcher.py", *options]
    kernelapp.IPKernelApp.launch_instance(argv=options)


def provide(forked=None) -> None:
    """Have jupyter_client start kernels as `serve` does; the first is `forked` (warm.Kernel), where one waits."""
    from jupyter_client.provisioning import KernelProvisionerFactory, LocalProvisioner

    class Ours(LocalProvisioner):
        async def launch_kernel(self, cmd: list[str], **kwargs) -> dict:
            if forked is None or forked.started:  # or a second try
                ours = [sys.executable, "-m", "workflow.kernel", *cmd[cmd.index("-f") :]]
                return await super().launch_kernel(ours, **kwargs)
            self.cwd = kwargs.get("cwd") or os.getcwd()
            forked.start(cmd, kwargs["env"], self.cwd)
            self.process, self.pid, self.pgid = forked, forked.pid, forked.pid
            return self.connection_info

    factory = KernelProvisionerFactory.instance()
    factory.provisioners["ours"] = SimpleNamespace(name="ours", load=lambda: Ours)  # as an entry point
    factory.default_provisioner_name = "ours"


if __name__ == "__main__":
    serve(sys.argv[1:])
