"""Does every call of the resource service with a client that grpcio-tools
generated from the proto files.

usage: every_call.py ADDRESS GENERATED_FOLDER
"""

import sys

import grpc

sys.path.insert(0, sys.argv[2])
from google.protobuf import any_pb2  # noqa: E402
from pbresource import resource_pb2 as pb  # noqa: E402
from pbresource import resource_pb2_grpc  # noqa: E402
from private.pbdemo.v1 import demo_pb2 as demo  # noqa: E402

CONSISTENT = (("x-consul-consistency-mode", "consistent"),)


def main():
    with grpc.insecure_channel(sys.argv[1]) as channel:
        run(resource_pb2_grpc.ResourceServiceStub(channel))


def run(stub):
    kind = pb.Type(group="demo", group_version="v1", kind="Artist")
    tenancy = pb.Tenancy(partition="default", namespace="default")
    identity = pb.ID(name="nina", type=kind, tenancy=tenancy)
    data = any_pb2.Any()
    data.Pack(demo.Artist(name="Nina", genre=demo.GENRE_BLUES))

    watch = stub.WatchList(pb.WatchListRequest(type=kind, tenancy=tenancy))
    assert next(watch).HasField("end_of_snapshot")
    print("WatchList: end of snapshot")

    dry = stub.MutateAndValidate(
        pb.MutateAndValidateRequest(resource=pb.Resource(id=identity, data=data))
    )
    assert dry.resource.version == ""
    print("MutateAndValidate: fine")

    stored = stub.Write(pb.WriteRequest(resource=pb.Resource(id=identity, data=data))).resource
    assert len(stored.id.uid) == 26 and stored.version and stored.generation
    print("Write: uid and version are set")

    read = stub.Read(pb.ReadRequest(id=identity), metadata=CONSISTENT).resource
    assert read == stored
    print("Read: equal")

    child = pb.Resource(
        id=pb.ID(
            name="pastel-blues",
            type=pb.Type(group="demo", group_version="v1", kind="Album"),
            tenancy=tenancy,
        ),
        owner=stored.id,
    )
    stub.Write(pb.WriteRequest(resource=child))
    owned = stub.ListByOwner(pb.ListByOwnerRequest(owner=stored.id)).resources
    assert [r.id.name for r in owned] == ["pastel-blues"]
    print("ListByOwner: pastel-blues")

    status = pb.Status(
        observed_generation=stored.generation,
        conditions=[pb.Condition(type="Accepted", state=pb.Condition.STATE_TRUE)],
    )
    changed = stub.WriteStatus(
        pb.WriteStatusRequest(id=stored.id, key="example", status=status)
    ).resource
    assert changed.status["example"].updated_at.seconds > 0
    print("WriteStatus: time is set")

    listed = stub.List(pb.ListRequest(type=kind, tenancy=tenancy), metadata=CONSISTENT).resources
    assert [r.id.name for r in listed] == ["nina"]
    print("List: nina")

    try:
        stub.Write(pb.WriteRequest(resource=stored))
        raise AssertionError("an old version was taken")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.ABORTED
        print(f"Write of an old version: {error.code().name}: {error.details()}")

    stub.Delete(pb.DeleteRequest(id=stored.id, version=changed.version))
    try:
        stub.Read(pb.ReadRequest(id=identity))
        raise AssertionError("still there")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.NOT_FOUND
        print(f"Delete, then Read: {error.code().name}: {error.details()}")

    kinds = [next(watch).WhichOneof("event") for _ in range(3)]
    assert kinds == ["upsert", "upsert", "delete"], kinds
    print("WatchList: upsert, upsert, delete")
    watch.cancel()


main()
