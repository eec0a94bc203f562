from engines.discovery.parse import base_url, parse_answers, parse_scan, parse_stat

US = "\037"
SCAN = f"""\
boot 6f1f0c3e-0000-4000-8000-000000000001
uptime 100000.50
hertz 100
uid 1001
socket 00000000:1F40 1001 5001
socket 0100007F:A3C1 1001 5002
socket 00000000000000000000000000000000:1F41 1002 6001
stat 1 (systemd) S 0 1 1 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 1 0 10 1 1
stat 900 (bash) S 1 900 900 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 1 0 9000000 1 1
stat 1000 (vllm (main)) S 900 900 900 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 1 0 9990050 1 1
stat 1001 (VLLM::EngineCor) S 1000 900 900 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 1 0 9990100 1 1
stat 1002 (VLLM::APIServer) S 1000 900 900 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 1 0 9990200 1 1
stat 2000 (python3) S 1 2000 2000 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 1 0 9000000 1 1
process 1000
argv /opt/vllm/bin/python3{US}/opt/vllm/bin/vllm{US}serve{US}Qwen/Qwen3-8B{US}--api-key{US}sk-secret{US}
owner 1001 ops
exe /usr/bin/python3.12
inode 5002
log /home/ops/vllm.log
log_readable yes
process 1001
argv VLLM::EngineCore{US}
owner 1001 ops
exe /usr/bin/python3.12
inode 5009
process 1002
argv VLLM::APIServer_0{US}
owner 1001 ops
exe /usr/bin/python3.12
inode 5001
process 2000
argv python3{US}-m{US}vllm.entrypoints.openai.api_server{US}--model{US}a b{US}--port{US}8001{US}
owner 1002 mallory
unreadable yes
process 3000
argv grep{US}-r{US}vllm{US}
owner 1001 ops
"""


def test_a_server_of_several_processes_is_one_and_has_their_port():
    scan = parse_scan(SCAN)
    assert scan.boot_id == "6f1f0c3e-0000-4000-8000-000000000001"
    first, second = scan.servers
    assert (first.pid, first.owner, first.model, first.address, first.port) == (
        1000,
        "ops",
        "Qwen/Qwen3-8B",
        "0.0.0.0",
        8000,
    )
    assert [process["pid"] for process in first.processes] == [1000, 1001, 1002]
    assert first.processes[0] == {"pid": 1000, "ticks": 9990050, "name": "vllm (main)"}
    assert (first.log_path, first.log_readable) == ("/home/ops/vllm.log", True)
    assert first.environment == "/opt/vllm"
    assert first.started_before_s == 100.0
    assert first.notes == []
    assert "sk-secret" not in str(first.as_dict())
    assert (second.pid, second.owner, second.port, second.model) == (2000, "mallory", 8001, "a b")
    assert second.notes == ["unreadable"]
    assert scan.unreadable == 1


def test_a_server_that_does_not_listen_yet_has_no_port():
    text = "\n".join(line for line in SCAN.splitlines() if not line.startswith("socket"))
    assert [server.notes for server in parse_scan(text).servers] == [["no_port"], ["unreadable", "no_port"]]


def test_another_users_server_is_not_given_a_strangers_port():
    text = SCAN.replace("1F41 1002", "1F41 1003")
    assert parse_scan(text).servers[1].port is None


def test_nothing_found_and_rubbish_are_no_error():
    assert parse_scan("boot x\nhidden yes\n").servers == []
    assert parse_scan("boot x\nhidden yes\n").hidden
    assert parse_scan("socket zz:zz 1 1\nstat 1 (a\nprocess x\nargv \n").servers == []
    assert parse_stat("12 (a) S 1 2") is None


def test_addresses_are_read_as_the_kernel_writes_them():
    text = SCAN.replace("00000000:1F40", "0E03000A:1F40")
    assert parse_scan(text).servers[0].address == "10.0.3.14"
    text = SCAN.replace("00000000:1F40", "0000000000000000FFFF00000E03000A:1F40")
    assert parse_scan(text).servers[0].address == "10.0.3.14"


def test_the_url_to_ask():
    assert base_url("0.0.0.0", 8000) == "http://127.0.0.1:8000"
    assert base_url("::", 8000) == "http://127.0.0.1:8000"
    assert base_url("10.0.3.14", 8000) == "http://10.0.3.14:8000"
    assert base_url("fd00::1", 8000) == "http://[fd00::1]:8000"


def test_what_the_server_says():
    found = parse_answers(
        "answer /health 200 \n"
        'answer /version 200 {"version":"0.32.0"}\n'
        'answer /v1/models 200 {"object":"list","data":[{"id":"a","max_model_len":2048},{"id":"b"}]}\n'
    )
    assert found == {
        "health": 200,
        "models": 200,
        "version": "0.32.0",
        "served_names": ["a", "b"],
        "max_model_len": 2048,
    }
    refused = parse_answers('answer /v1/models 401 {"error":"Unauthorized"}\nanswer /health 000 \n')
    assert (refused["models"], refused["health"], refused["served_names"]) == (401, 0, [])
    assert parse_answers("answer /v1/models 200 [1]\nanswer /version 200 <html>\n")["version"] == ""
