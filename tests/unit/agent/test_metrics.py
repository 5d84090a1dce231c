"""Who asks the agent how it is."""

import socket
import struct
import threading

from punctual_agent.metrics import AgentMetrics, serve


def test_a_probe_that_does_not_wait_for_its_answer_is_no_error(capfd):
    asked, answer, over = threading.Event(), threading.Event(), threading.Event()

    def healthy():
        asked.set()
        assert answer.wait(60)
        return True

    server = serve(AgentMetrics(), healthy, port=0, address="127.0.0.1")
    finish = server.shutdown_request
    server.shutdown_request = lambda request: (finish(request), over.set())
    try:
        with socket.create_connection(server.server_address) as probe:
            probe.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            assert asked.wait(60)
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # hangs up for good
        answer.set()
        assert over.wait(60)
    finally:
        server.shutdown()
        server.server_close()
    assert "Traceback" not in capfd.readouterr().err
