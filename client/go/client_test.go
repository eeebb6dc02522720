package sparsefw_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	sparsefw "github.com/sparsefw/sparsefw/client/go"
	v1 "github.com/sparsefw/sparsefw/client/go/v1"
)

var ctx = context.Background()

func wanda(sparsity float64) *v1.JobSpec {
	return &v1.JobSpec{Method: v1.Method_METHOD_WANDA, Pattern: sparsefw.PerRow(sparsity)}
}

func endless() *v1.JobSpec {
	iterations := int64(1) << 40
	return &v1.JobSpec{
		Method: v1.Method_METHOD_SPARSEFW, Pattern: sparsefw.PerRow(0.6),
		Sparsefw: &v1.SparseFwOptions{Iterations: &iterations, ReportEvery: proto.Int64(100)},
	}
}

func TestPruneGivesTheMaskAndItsLoss(t *testing.T) {
	client := startServer(t).dial()
	l := makeLayer(24, 32, 200)
	iterations := int64(300)
	for _, pattern := range []*v1.Pattern{
		sparsefw.PerRow(0.6), sparsefw.Unstructured(0.55), sparsefw.KeepOfGroup(2, 4),
	} {
		spec := &v1.JobSpec{
			Method: v1.Method_METHOD_SPARSEFW, Pattern: pattern, ReturnPrunedWeight: true,
			Sparsefw: &v1.SparseFwOptions{Iterations: &iterations},
		}
		events := 0
		result, err := client.Prune(ctx, sparsefw.Layer{Weight: l.Weight, Activations: l.Activations}, spec,
			func(*v1.JobEvent) { events++ })
		must(t, err)
		if events == 0 {
			t.Error("no events")
		}
		if got := int64(result.Mask.Count()); got != result.Job.GetResult().GetKeptCount() {
			t.Errorf("%v: %d kept of %d", pattern, got, result.Job.GetResult().GetKeptCount())
		}
		if want := l.loss(result.Mask); math.Abs(result.Losses().GetMask()-want) > 1e-4*want {
			t.Errorf("%v: loss %g, expected %g", pattern, result.Losses().GetMask(), want)
		}
		pruned := append([]float32(nil), l.weight...)
		must(t, sparsefw.Apply(result.Mask, pruned))
		for i, value := range result.Weight.Values() {
			if value != pruned[i] {
				t.Fatalf("%v: pruned weight %d is %g, expected %g", pattern, i, value, pruned[i])
			}
		}
	}
	tensors, err := client.ListTensors(ctx, sparsefw.TensorFilter{})
	must(t, err)
	for _, tensor := range tensors {
		if kind := tensor.GetSpec().GetKind(); kind == v1.TensorKind_TENSOR_KIND_WEIGHT || kind == v1.TensorKind_TENSOR_KIND_GRAM {
			t.Errorf("%s, a %s, was left", tensor.GetName(), kind)
		}
	}
}

func TestErrorsHaveReasons(t *testing.T) {
	client := startServer(t).dial()
	l := makeLayer(8, 12, 40)
	_, err := client.Prune(ctx, sparsefw.Layer{Weight: l.Weight, Gram: makeLayer(1, 9, 9).Gram_},
		wanda(0.5), nil)
	if !errors.Is(err, sparsefw.ErrInvalidArgument) || sparsefw.ReasonOf(err) != "SHAPE_MISMATCH" {
		t.Errorf("a Gram matrix that does not fit: %v", err)
	}
	var e *sparsefw.Error
	if !errors.As(err, &e) || e.Metadata["field"] != "gram" {
		t.Errorf("metadata: %+v", e)
	}
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("status.Code: %v", status.Code(err))
	}
	if errors.Is(err, &sparsefw.Error{Code: codes.InvalidArgument, Reason: "NON_FINITE"}) {
		t.Error("another reason is another error")
	}
	_, err = client.GetJob(ctx, "jobs/none")
	if !errors.Is(err, sparsefw.ErrNotFound) || sparsefw.ReasonOf(err) != "JOB_NOT_FOUND" {
		t.Errorf("a job that is not there: %v", err)
	}
	l.gram[3] = float32(math.NaN())
	_, err = client.Prune(ctx, sparsefw.Layer{Weight: l.Weight, Gram: l.Gram_}, wanda(0.5), nil)
	if sparsefw.ReasonOf(err) != "NON_FINITE" {
		t.Errorf("a Gram matrix with a NaN: %v", err)
	}
	if tensors, _ := client.ListTensors(ctx, sparsefw.TensorFilter{}); len(tensors) != 0 {
		t.Errorf("%d tensors were left", len(tensors))
	}
}

func TestBadArgumentsNeedNoServer(t *testing.T) {
	for what, opts := range map[string][]sparsefw.Option{
		"chunk":   {sparsefw.WithChunkBytes(0)},
		"timeout": {sparsefw.WithCallTimeout(0)},
		"CA":      {sparsefw.WithTLSFiles("/none", "", "")},
		"retry":   {sparsefw.WithRetry(sparsefw.RetryPolicy{})},
		"token":   {sparsefw.WithToken("secret")},
	} {
		_, err := sparsefw.Dial(ctx, "192.0.2.1:1", opts...)
		if sparsefw.ReasonOf(err) != "CLIENT_ARGUMENT" {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, address := range []string{"", "127.0.0.1:1,", ",127.0.0.1:1"} {
		if _, err := sparsefw.Dial(ctx, address); sparsefw.ReasonOf(err) != "CLIENT_ARGUMENT" {
			t.Errorf("an empty address in %q: %v", address, err)
		}
	}
	start := time.Now()
	_, err := sparsefw.Dial(ctx, "127.0.0.1:1", sparsefw.WithConnectTimeout(200*time.Millisecond))
	if sparsefw.ReasonOf(err) != "UNREACHABLE" || time.Since(start) > 10*time.Second {
		t.Errorf("a port on which nobody listens: %v after %s", err, time.Since(start))
	}
	limited, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := sparsefw.Dial(limited, "127.0.0.1:1"); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
}

func TestUploadsGoOnWhereTheyBroke(t *testing.T) {
	server := startServer(t)
	data := make([]byte, 3<<20)
	rand.New(rand.NewSource(1)).Read(data)
	for i := 3; i < len(data); i += 4 {
		data[i] = 0x3f // finite
	}
	spec := &v1.TensorSpec{
		Kind: v1.TensorKind_TENSOR_KIND_WEIGHT, Dtype: v1.DataType_DATA_TYPE_F32, Dims: []int64{1024, 768},
	}
	for name, upload := range map[string]func(*sparsefw.Client) (*v1.Tensor, error){
		"bytes": func(c *sparsefw.Client) (*v1.Tensor, error) { return c.UploadBytes(ctx, spec, data) },
		"reader": func(c *sparsefw.Client) (*v1.Tensor, error) {
			return c.UploadReader(ctx, spec, onlyReader{bytes.NewReader(data)})
		},
	} {
		between := startProxy(t, server.address, 100_000, 1_000_000, 2_500_000)
		seen := &retries{}
		client := dial(t, between.address, quick(), seen.option(), sparsefw.WithChunkBytes(50_000),
			sparsefw.WithWindowBytes(700_001))
		tensor, err := upload(client)
		must(t, err)
		if between.cutsLeft() > 0 || seen.count() < 3 {
			t.Errorf("%s: %d cuts left, %d retries", name, between.cutsLeft(), seen.count())
		}
		var back bytes.Buffer
		_, err = client.ReadTensor(ctx, tensor.GetName(), &back)
		must(t, err)
		if !bytes.Equal(back.Bytes(), data) {
			t.Errorf("%s: other bytes came back", name)
		}
	}
}

func TestNoTokenCountsTwice(t *testing.T) {
	server := startServer(t)
	l := makeLayer(1, 32, 4000)
	spec := &v1.GramSpec{DIn: 32, ActivationDtype: v1.DataType_DATA_TYPE_F32, GramDtype: v1.DataType_DATA_TYPE_F64}
	between := startProxy(t, server.address, 50_000, 300_000, 450_000)
	client := dial(t, between.address, quick(), sparsefw.WithChunkBytes(10_000))
	tensor, err := client.GramReader(ctx, spec, onlyReader{bytes.NewReader(l.Activations.Data)})
	must(t, err)
	if between.cutsLeft() > 0 {
		t.Error("nothing was cut")
	}
	if tensor.GetSpec().GetTokenCount() != 4000 {
		t.Errorf("%d tokens", tensor.GetSpec().GetTokenCount())
	}
	gram, err := client.ReadMatrix(ctx, tensor.GetName())
	must(t, err)
	for i, value := range gram.Values() {
		if want := float64(l.gram[i]); math.Abs(float64(value)-want) > 1e-4*math.Abs(want)+1e-2 {
			t.Fatalf("G[%d] is %g, expected %g", i, value, want)
		}
	}
}

func TestWorkersSumTheirParts(t *testing.T) {
	client := startServer(t).dial()
	l := makeLayer(1, 16, 60)
	var parts []string
	for rank := 0; rank < 3; rank++ {
		shard := sparsefw.Float32(20, 16, l.activations[rank*20*16:(rank+1)*20*16])
		part, err := client.Gram(ctx, shard)
		must(t, err)
		parts = append(parts, part.GetName())
	}
	sum, err := client.SumGrams(ctx, parts, v1.DataType_DATA_TYPE_F64, sparsefw.WithRequestID("sum"))
	must(t, err)
	again, err := client.SumGrams(ctx, parts, v1.DataType_DATA_TYPE_F64, sparsefw.WithRequestID("sum"))
	must(t, err)
	if sum.GetSpec().GetTokenCount() != 60 || again.GetName() != sum.GetName() {
		t.Errorf("%v, again %v", sum, again)
	}
}

func TestAJobAndItsWatchOutliveKill9(t *testing.T) {
	server := startServer(t, "--checkpoint-period", "100ms")
	seen := &retries{}
	client := server.dial(quick(), seen.option())
	l := makeLayer(256, 256, 300)
	iterations := int64(3000)
	spec := &v1.JobSpec{
		Method: v1.Method_METHOD_SPARSEFW, Pattern: sparsefw.PerRow(0.6),
		Sparsefw: &v1.SparseFwOptions{Iterations: &iterations, ReportEvery: proto.Int64(100)},
	}
	input := sparsefw.Layer{Weight: l.Weight, Gram: l.Gram_}
	undisturbed, err := client.Prune(ctx, input, spec, nil)
	must(t, err)
	killed := false
	result, err := client.Prune(ctx, input, spec, func(event *v1.JobEvent) {
		if !killed && event.GetJob().GetProgress().GetIteration() > 0 {
			killed = true
			server.kill()
			server.start()
		}
	})
	must(t, err)
	if !killed || seen.count() == 0 || result.Job.GetAttempts() != 2 {
		t.Errorf("killed %v, %d retries, %d attempts", killed, seen.count(), result.Job.GetAttempts())
	}
	if !bytes.Equal(result.Mask.Bits, undisturbed.Mask.Bits) {
		t.Error("another mask")
	}
}

func TestContextsEndCallsAndCancelJobs(t *testing.T) {
	client := startServer(t).dial()
	l := makeLayer(64, 64, 100)
	limited, cancel := context.WithCancel(ctx)
	var name string
	_, err := client.Prune(limited, sparsefw.Layer{Weight: l.Weight, Gram: l.Gram_}, endless(),
		func(event *v1.JobEvent) {
			name = event.GetJob().GetName()
			if event.GetJob().GetProgress().GetIteration() > 0 {
				cancel()
			}
		})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	job, err := client.Wait(ctx, name, nil)
	must(t, err)
	if job.GetState() != v1.JobState_JOB_STATE_CANCELLED {
		t.Errorf("%s", job.GetState())
	}
	// It has the best mask so far.
	result, err := client.Result(ctx, job)
	must(t, err)
	if result.Mask.Count() != 64*26 {
		t.Errorf("%d kept", result.Mask.Count())
	}
}

func TestTheSameRequestIDGoesOn(t *testing.T) {
	client := startServer(t).dial()
	l := makeLayer(128, 128, 200)
	iterations := int64(4000)
	spec := &v1.JobSpec{
		Method: v1.Method_METHOD_SPARSEFW, Pattern: sparsefw.PerRow(0.6),
		Sparsefw: &v1.SparseFwOptions{Iterations: &iterations, ReportEvery: proto.Int64(100)},
	}
	input := sparsefw.Layer{Weight: l.Weight, Activations: l.Activations}
	limited, cancel := context.WithCancel(ctx)
	var first string
	_, err := client.Prune(limited, input, spec, func(event *v1.JobEvent) {
		first = event.GetJob().GetName()
		if event.GetJob().GetProgress().GetIteration() > 0 {
			cancel()
		}
	}, sparsefw.WithRequestID("layer 7"))
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	result, err := client.Prune(ctx, input, spec, nil, sparsefw.WithRequestID("layer 7"))
	must(t, err)
	if result.Job.GetName() != first || result.Job.GetState() != v1.JobState_JOB_STATE_SUCCEEDED {
		t.Errorf("%s %s, first %s", result.Job.GetName(), result.Job.GetState(), first)
	}
}

func TestWatchesOfQueuedCancelledAndUnknownJobs(t *testing.T) {
	client := startServer(t, "--workers", "1").dial()
	l := makeLayer(64, 64, 100)
	weight, err := client.Upload(ctx, v1.TensorKind_TENSOR_KIND_WEIGHT, l.Weight)
	must(t, err)
	gram, err := client.Upload(ctx, v1.TensorKind_TENSOR_KIND_GRAM, l.Gram_)
	must(t, err)
	spec := endless()
	spec.Weight, spec.Gram = weight.GetName(), gram.GetName()
	running, err := client.CreateJob(ctx, spec)
	must(t, err)
	queued, err := client.CreateJob(ctx, spec, sparsefw.WithRequestID("second"))
	must(t, err)
	same, err := client.CreateJob(ctx, spec, sparsefw.WithRequestID("second"))
	must(t, err)
	if same.GetName() != queued.GetName() {
		t.Error("the same request made two jobs")
	}
	_, err = client.CancelJob(ctx, queued.GetName())
	must(t, err)
	watch := client.Watch(ctx, queued.GetName(), 0)
	defer watch.Close()
	for watch.Next() {
	}
	must(t, watch.Err())
	if watch.Event().GetJob().GetState() != v1.JobState_JOB_STATE_CANCELLED {
		t.Errorf("%s", watch.Event().GetJob().GetState())
	}
	var failed *sparsefw.JobError
	if _, err := client.Result(ctx, watch.Event().GetJob()); !errors.As(err, &failed) {
		t.Errorf("the result of a job without a mask: %v", err)
	}
	// A revision that the server does not know: the job as it is.
	watch = client.Watch(ctx, queued.GetName(), 1<<40)
	defer watch.Close()
	if !watch.Next() || watch.Event().GetJob().GetState() != v1.JobState_JOB_STATE_CANCELLED {
		t.Errorf("%v", watch.Err())
	}
	watch = client.Watch(ctx, "jobs/none", 0)
	if watch.Next() || !errors.Is(watch.Err(), sparsefw.ErrNotFound) {
		t.Errorf("%v", watch.Err())
	}
	err = client.DeleteTensor(ctx, weight.GetName())
	if sparsefw.ReasonOf(err) != "TENSOR_IN_USE" {
		t.Errorf("a tensor in use: %v", err)
	}
	_, err = client.CancelJob(ctx, running.GetName())
	must(t, err)
	_, err = client.Wait(ctx, running.GetName(), nil)
	must(t, err)
	jobs, err := client.ListJobs(ctx, sparsefw.JobFilter{States: []v1.JobState{v1.JobState_JOB_STATE_CANCELLED}})
	must(t, err)
	if len(jobs) != 2 || jobs[0].GetName() != queued.GetName() {
		t.Errorf("%v", jobs)
	}
	must(t, client.DeleteJob(ctx, running.GetName()))
}

func TestOneOfTwoAddressesIsEnough(t *testing.T) {
	server := startServer(t)
	client := dial(t, "127.0.0.1:1,"+server.address, quick())
	info, err := client.ServerInfo(ctx)
	must(t, err)
	if info.GetVersion() == "" {
		t.Error("no version")
	}
}

// onlyReader hides Seek.
type onlyReader struct{ from *bytes.Reader }

func (r onlyReader) Read(data []byte) (int, error) { return r.from.Read(data) }

func TestANamedUploadCanBeComeBackTo(t *testing.T) {
	client := startServer(t).dial(sparsefw.WithChunkBytes(64 << 10))
	weight := sparsefw.Float32(512, 512, make([]float32, 512*512))
	var first int64
	upload := func(ctx context.Context, then func(int64)) error {
		first = 0
		_, err := client.Upload(ctx, v1.TensorKind_TENSOR_KIND_WEIGHT, weight, sparsefw.WithRequestID("mine"),
			sparsefw.WithProgress(func(sent int64) {
				if first == 0 {
					first = sent
				}
				then(sent)
			}))
		return err
	}
	limited, cancel := context.WithCancel(ctx)
	err := upload(limited, func(sent int64) {
		if sent > 512<<10 {
			time.Sleep(50 * time.Millisecond) // the server takes what came
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	must(t, upload(ctx, func(int64) {}))
	if first <= 64<<10 {
		t.Errorf("it began anew: the first message ended at byte %d", first)
	}
}
