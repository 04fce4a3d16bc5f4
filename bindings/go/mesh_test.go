package fsdp2_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"fsdp2"
)

func TestMeshOfTwoDims(t *testing.T) {
	defer noHandles(t)
	mustOnRanks(t, 4, func(job *fsdp2.Mesh, rank int) error {
		options := fsdp2.DefaultMeshOptions()
		options.Shape, options.Names = []int{2, -1}, []string{"ddp", "fsdp"}
		mesh, err := job.NewMesh(&options)
		if err != nil {
			return err
		}
		defer mesh.Close()
		info, err := mesh.Info()
		if err != nil || info.Rank != rank || fmt.Sprint(info.Shape) != "[2 2]" || info.Coordinate[0] != rank/2 {
			return fmt.Errorf("%+v, %v", info, err)
		}
		inner, err := mesh.Submesh("fsdp")
		if err != nil {
			return err
		}
		defer inner.Close()
		ranks, err := inner.Ranks()
		if err != nil || len(ranks) != 2 || ranks[0] != rank/2*2 {
			return fmt.Errorf("ranks %v, %v", ranks, err)
		}
		root, dims, err := inner.Root()
		if err != nil || len(dims) != 1 || dims[0] != 1 {
			return fmt.Errorf("dims %v, %v", dims, err)
		}
		defer root.Close()
		if same, err := root.IsEqual(mesh); err != nil || !same {
			return fmt.Errorf("root: %v, %v", same, err)
		}
		if _, err := mesh.DimIndex("pp"); !errors.Is(err, fsdp2.ErrNotFound) {
			return fmt.Errorf("no such dim: %v", err)
		}
		if _, err := mesh.DeviceMemory(); !errors.Is(err, fsdp2.ErrUnsupported) {
			return fmt.Errorf("memory of the host: %v", err)
		}
		if dtype, err := mesh.ChooseDtype(); err != nil || dtype != fsdp2.DtypeBF16 && dtype != fsdp2.DtypeF32 {
			return fmt.Errorf("dtype of a CPU: %v, %v", dtype, err)
		}
		values := []float64{float64(rank)}
		if err := job.AllReduce(values, fsdp2.ReduceSum); err != nil || values[0] != 6 {
			return fmt.Errorf("sum %v, %v", values, err)
		}
		return tensorsMove(job, rank)
	})
}

func tensorsMove(job *fsdp2.Mesh, rank int) error {
	return fsdp2.WithScope(func(scope *fsdp2.Scope) error {
		piece, err := fsdp2.FromSlice([]int64{int64(rank)})
		if err != nil {
			return err
		}
		if err := scope.Add(piece); err != nil {
			return err
		}
		whole, err := job.AllGather(0, piece, 0)
		if err != nil {
			return err
		}
		defer whole.Close()
		values, err := fsdp2.ToSlice[int64](whole)
		if err != nil || fmt.Sprint(values) != "[0 1 2 3]" {
			return fmt.Errorf("gathered %v, %v", values, err)
		}
		if rank != 0 {
			whole.Close()
			whole = nil
		}
		scattered, err := job.Scatter(0, whole, 0)
		if err != nil {
			return err
		}
		defer scattered.Close()
		value, err := scattered.Value()
		if err == nil && value != float64(rank) {
			err = fmt.Errorf("scattered %v", value)
		}
		return err
	})
}

func TestContextThatEndsFailsTheMesh(t *testing.T) {
	defer noHandles(t)
	ctx, cancel := context.WithCancel(context.Background())
	errs := onRanks(t, 2, func(mesh *fsdp2.Mesh, rank int) error {
		if rank == 1 {
			<-ctx.Done()
			return ctx.Err() // never comes to the barrier
		}
		stop := mesh.FailOnDone(ctx)
		defer stop()
		time.AfterFunc(50*time.Millisecond, cancel)
		return mesh.Barrier()
	})
	if !errors.Is(errs[0], fsdp2.ErrPeerFailed) {
		t.Errorf("found %v", errs[0])
	}
	contains(t, errs[0], "context canceled")
}

func TestStoppedContextLeavesTheMeshAlone(t *testing.T) {
	defer noHandles(t)
	mustOnRanks(t, 1, func(mesh *fsdp2.Mesh, rank int) error {
		ctx, cancel := context.WithCancel(context.Background())
		stop := mesh.FailOnDone(ctx)
		stop()
		stop()
		cancel()
		return mesh.Barrier()
	})
}

func TestJoiningIsGivenUpWithTheContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	options := fsdp2.DefaultMeshOptions()
	options.Rendezvous, options.Rank, options.WorldSize = "thread://one-comes-late", 0, 2
	options.Timeout = time.Minute
	start := time.Now()
	if _, err := fsdp2.NewMesh(ctx, &options); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("found %v", err)
	}
	if waited := time.Since(start); waited > options.Timeout/2 {
		t.Errorf("waited %v", waited)
	}
	options.Rank = 1 // with which joining ends: it hears that it is alone
	other, err := fsdp2.NewMesh(context.Background(), &options)
	if err == nil {
		err = other.Barrier()
		must(t, other.Close())
	}
	contains(t, err, "joining was given up: context deadline exceeded")
	noHandles(t)
}

func TestStrategySetsMeshAndReshard(t *testing.T) {
	mesh, options := fsdp2.DefaultMeshOptions(), fsdp2.ShardOptions{}
	mesh.WorldSize = 4
	if err := fsdp2.ApplyStrategy("half", 0, &mesh, &options); !errors.Is(err, fsdp2.ErrInvalidArgument) {
		t.Errorf("no such strategy: %v", err)
	}
	must(t, fsdp2.ApplyStrategy("hybrid_shard_zero2", 2, &mesh, &options))
	if options.ReshardAfterForward != fsdp2.ReshardNever || mesh.FSDPSize != 2 || mesh.WorldSize != 4 {
		t.Errorf("%+v, %+v", mesh, options)
	}
}

func TestDimsAreTakenApartAndPutTogether(t *testing.T) {
	defer noHandles(t)
	mustOnRanks(t, 4, func(job *fsdp2.Mesh, rank int) error {
		options := fsdp2.DefaultMeshOptions()
		options.Shape, options.Names = []int{2, 2}, []string{"ddp", "fsdp"}
		mesh, err := job.NewMesh(&options)
		if err != nil {
			return err
		}
		defer mesh.Close()
		name, err := mesh.DimName(1)
		if err != nil || name != "fsdp" {
			return fmt.Errorf("name %q, %v", name, err)
		}
		ranks, err := mesh.GroupRanks(0)
		if err != nil || fmt.Sprint(ranks) != fmt.Sprint([]int{rank % 2, rank%2 + 2}) {
			return fmt.Errorf("ranks of a group %v, %v", ranks, err)
		}
		group, err := mesh.FromGroup(0, "alone")
		if err != nil {
			return err
		}
		defer group.Close()
		info, err := group.Info()
		if err != nil || fmt.Sprint(info.Shape) != "[2]" || info.Coordinate[0] != rank/2 {
			return fmt.Errorf("mesh of a group %+v, %v", info, err)
		}
		flat, err := mesh.Flatten([]string{"ddp", "fsdp"}, "")
		if err != nil {
			return err
		}
		defer flat.Close()
		if name, err := flat.DimName(0); err != nil || name != "ddp_fsdp" {
			return fmt.Errorf("flattened: %q, %v", name, err)
		}
		same, err := mesh.Duplicate()
		if err != nil {
			return err
		}
		defer same.Close()
		one, err := mesh.Hash()
		if err != nil {
			return err
		}
		two, err := same.Hash()
		if err == nil && one != two {
			err = fmt.Errorf("equal meshes have the hashes %d and %d", one, two)
		}
		return err
	})
}

func TestTensorsAreReducedOverTheGroup(t *testing.T) {
	defer noHandles(t)
	mustOnRanks(t, 2, func(job *fsdp2.Mesh, rank int) error {
		tensor, err := fsdp2.FromSlice([]float32{float32(rank), 2})
		if err != nil {
			return err
		}
		defer tensor.Close()
		piece, err := job.ReduceScatter(0, tensor, 0, fsdp2.ReduceSum)
		if err != nil {
			return err
		}
		defer piece.Close()
		if value, err := piece.Value(); err != nil || value != []float64{1, 4}[rank] {
			return fmt.Errorf("piece %v, %v", value, err)
		}
		if err := job.AllReduceTensor(0, tensor, fsdp2.ReduceAverage); err != nil {
			return err
		}
		values, err := fsdp2.ToSlice[float32](tensor)
		if err == nil && fmt.Sprint(values) != "[0.5 2]" {
			err = fmt.Errorf("average %v", values)
		}
		return err
	})
}

func TestARankThatFailsTellsTheOthers(t *testing.T) {
	defer noHandles(t)
	errs := onRanks(t, 2, func(mesh *fsdp2.Mesh, rank int) error {
		if rank == 1 {
			return mesh.Fail("its data is gone")
		}
		return mesh.Barrier()
	})
	must(t, errs[1])
	if !errors.Is(errs[0], fsdp2.ErrPeerFailed) {
		t.Errorf("found %v", errs[0])
	}
	contains(t, errs[0], "its data is gone")
}
