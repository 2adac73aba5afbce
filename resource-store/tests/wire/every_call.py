"""Does every call of the resource service with a client that grpcio-tools
generate from the proto files, and says what came of each.

usage: every_call.py ADDRESS
"""

import importlib.resources
import pathlib
import sys
import tempfile

import grpc
from grpc_tools import protoc

PROTO = pathlib.Path(__file__).resolve().parents[2] / "proto"
FILES = [
    "annotations/ratelimit/ratelimit.proto",
    "pbresource/annotations.proto",
    "pbresource/resource.proto",
    "private/pbdemo/v1/demo.proto",
    "private/pbdemo/v2/demo.proto",
]
CONSISTENT = (("x-consul-consistency-mode", "consistent"),)
# No call may hang, whatever the server does.
LIMIT = {"timeout": 20}


def main():
    with tempfile.TemporaryDirectory() as generated:
        generate(generated)
        sys.path.insert(0, generated)
        from private.pbdemo.v1 import demo_pb2 as demo_v1
        from private.pbdemo.v2 import demo_pb2 as demo_v2
        from google.protobuf import any_pb2
        from pbresource import resource_pb2 as pb
        from pbresource import resource_pb2_grpc

        with grpc.insecure_channel(sys.argv[1]) as channel:
            stub = resource_pb2_grpc.ResourceServiceStub(channel)
            Calls(stub, pb, any_pb2, demo_v1, demo_v2).run()


def generate(folder):
    included = importlib.resources.files("grpc_tools") / "_proto"
    arguments = ["protoc", f"-I{PROTO}", f"-I{included}"]
    arguments += [f"--python_out={folder}", f"--grpc_python_out={folder}", *FILES]
    if protoc.main(arguments) != 0:
        sys.exit("the proto files do not compile")


def check(holds, what):
    # No assert: those go away under -O.
    if not holds:
        sys.exit(f"not as expected: {what}")


class Calls:
    def __init__(self, stub, pb, any_pb2, demo_v1, demo_v2):
        self.stub, self.pb, self.any_pb2 = stub, pb, any_pb2
        self.demo_v1, self.demo_v2 = demo_v1, demo_v2
        self.kind = pb.Type(group="demo", group_version="v1", kind="Artist")
        self.tenancy = pb.Tenancy(partition="default", namespace="default")

    def run(self):
        watch = self.stub.WatchList(
            self.pb.WatchListRequest(type=self.kind, tenancy=self.tenancy), **LIMIT
        )
        event = next(watch)
        check(event.WhichOneof("event") == "end_of_snapshot", event)
        print("WatchList: end_of_snapshot")
        self.mutate_and_validate()
        stored = self.write_and_read()
        self.list_by_owner(stored)
        changed = self.write_status(stored)
        self.list(changed)
        self.refused(stored)
        self.delete(changed)
        self.watched(watch, stored, changed)

    def resource(self, data, **fields):
        packed = self.any_pb2.Any()
        packed.Pack(data)
        return self.pb.Resource(data=packed, **fields)

    def identity(self, name, version="v1", kind="Artist"):
        ty = self.pb.Type(group="demo", group_version=version, kind=kind)
        return self.pb.ID(name=name, type=ty, tenancy=self.tenancy)

    def mutate_and_validate(self):
        artist = self.resource(self.demo_v2.Artist(name="Nina"), id=self.identity("nina", "v2"))
        dry = self.stub.MutateAndValidate(
            self.pb.MutateAndValidateRequest(resource=artist), **LIMIT
        ).resource
        data = self.demo_v2.Artist()
        check(dry.data.Unpack(data) and dry.version == "" and dry.id.uid == "", dry)
        print(f"MutateAndValidate: {self.demo_v2.Genre.Name(data.genre)}")

    def write_and_read(self):
        artist = self.demo_v1.Artist(name="Nina", genre=self.demo_v1.GENRE_BLUES)
        resource = self.resource(artist, id=self.identity("nina"))
        stored = self.stub.Write(self.pb.WriteRequest(resource=resource), **LIMIT).resource
        check(len(stored.id.uid) == 26 and len(stored.generation) == 26 and stored.version, stored)
        check(stored.data == resource.data, stored)
        print("Write: uid, generation and version are set")
        read = self.stub.Read(
            self.pb.ReadRequest(id=self.identity("nina")), metadata=CONSISTENT, **LIMIT
        ).resource
        check(read == stored, read)
        print("Read: equal")
        return stored

    def list_by_owner(self, owner):
        album = self.demo_v1.Album(name="Pastel Blues", year_of_release=1965, tracks=["Sinnerman"])
        child = self.resource(
            album, id=self.identity("pastel-blues", kind="Album"), owner=owner.id
        )
        child = self.stub.Write(self.pb.WriteRequest(resource=child), **LIMIT).resource
        owned = self.stub.ListByOwner(
            self.pb.ListByOwnerRequest(owner=owner.id), **LIMIT
        ).resources
        check(list(owned) == [child], owned)
        print(f"ListByOwner: {[resource.id.name for resource in owned]}")

    def write_status(self, stored):
        condition = self.pb.Condition(type="Accepted", state=self.pb.Condition.STATE_TRUE)
        status = self.pb.Status(observed_generation=stored.generation, conditions=[condition])
        request = self.pb.WriteStatusRequest(id=stored.id, key="example", status=status)
        changed = self.stub.WriteStatus(request, **LIMIT).resource
        check(changed.status["example"].conditions == status.conditions, changed)
        check(changed.status["example"].updated_at.seconds > 0, changed)
        check(changed.generation == stored.generation and changed.version != stored.version, changed)
        print("WriteStatus: updated_at is set, the generation is kept")
        return changed

    def list(self, stored):
        request = self.pb.ListRequest(type=self.kind, tenancy=self.tenancy, name_prefix="ni")
        listed = self.stub.List(request, metadata=CONSISTENT, **LIMIT).resources
        check(list(listed) == [stored], listed)
        print(f"List: {[resource.id.name for resource in listed]}")

    def refused(self, old):
        print("Write of an old version:", self.failure(
            lambda: self.stub.Write(self.pb.WriteRequest(resource=old), **LIMIT)
        ))

    def delete(self, stored):
        self.stub.Delete(self.pb.DeleteRequest(id=stored.id, version=stored.version), **LIMIT)
        print("Delete, then Read:", self.failure(
            lambda: self.stub.Read(self.pb.ReadRequest(id=self.identity("nina")), **LIMIT)
        ))

    def watched(self, watch, stored, changed):
        events = [next(watch) for _ in range(3)]
        check([event.WhichOneof("event") for event in events] == ["upsert", "upsert", "delete"], events)
        check(events[0].upsert.resource == stored, events[0])
        check(events[1].upsert.resource == changed, events[1])
        check(events[2].delete.resource == changed, events[2])
        print("WatchList: upsert, upsert, delete")
        watch.cancel()

    @staticmethod
    def failure(call):
        try:
            answer = call()
        except grpc.RpcError as error:
            return f"{error.code().name}: {error.details()}"
        sys.exit(f"no failure but {answer}")


main()
