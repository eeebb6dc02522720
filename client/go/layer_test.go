package sparsefw_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	sparsefw "github.com/sparsefw/sparsefw/client/go"
	v1 "github.com/sparsefw/sparsefw/client/go/v1"
)

// recorder keeps what it was asked for.
type recorder struct {
	fakeServer
	checked *v1.CheckJobOptionsRequest
	created *v1.CreateJobRequest
}

func (r *recorder) CheckJobOptions(_ context.Context, request *v1.CheckJobOptionsRequest) (*v1.CheckJobOptionsResponse, error) {
	r.checked = request
	return &v1.CheckJobOptionsResponse{}, nil
}

func (r *recorder) CreateJob(ctx context.Context, request *v1.CreateJobRequest) (*v1.Job, error) {
	r.created = request
	return r.fakeServer.CreateJob(ctx, request)
}

func named(weight, gram string) *v1.JobSpec {
	spec := wanda(0.5)
	spec.Weight, spec.Gram = weight, gram
	return spec
}

func TestTensorsOfALayerMayBeNamedInTheSpec(t *testing.T) {
	small := smallLayer()
	for what, test := range map[string]struct {
		layer        sparsefw.Layer
		spec         *v1.JobSpec
		weight, gram string // "": uploaded
	}{
		"both in the spec":  {sparsefw.Layer{}, named("tensors/w", "tensors/g"), "tensors/w", "tensors/g"},
		"both in the layer": {sparsefw.Layer{WeightName: "tensors/w", GramName: "tensors/g"}, wanda(0.5), "tensors/w", "tensors/g"},
		"one each":          {sparsefw.Layer{WeightName: "tensors/w"}, named("", "tensors/g"), "tensors/w", "tensors/g"},
		"a weight":          {sparsefw.Layer{Gram: small.Gram}, named("tensors/w", ""), "tensors/w", ""},
		"a Gram matrix":     {sparsefw.Layer{Weight: small.Weight}, named("", "tensors/g"), "", "tensors/g"},
	} {
		server := &recorder{}
		client := dial(t, startFake(t, server))
		before := proto.Clone(test.spec)
		if _, err := client.Prune(ctx, test.layer, test.spec, nil); err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if !proto.Equal(test.spec, before) {
			t.Errorf("%s: the caller's spec has become %v", what, test.spec)
		}
		checked, created := server.checked.GetSpec(), server.created.GetSpec()
		if checked.GetWeight() != test.weight || checked.GetGram() != test.gram {
			t.Errorf("%s: checked: %v", what, server.checked)
		}
		if (server.checked.GetWeight() == nil) != (test.weight != "") || (server.checked.GetGram() == nil) != (test.gram != "") {
			t.Errorf("%s: checked: %v", what, server.checked)
		}
		if created.GetWeight() == "" || (test.weight != "" && created.GetWeight() != test.weight) ||
			created.GetGram() == "" || (test.gram != "" && created.GetGram() != test.gram) {
			t.Errorf("%s: created: %v", what, created)
		}
		for _, removed := range server.all() {
			if removed == test.weight || removed == test.gram {
				t.Errorf("%s: %s was the caller's", what, removed)
			}
		}
	}
}

func TestARealServerTakesNamesOfTheSpec(t *testing.T) {
	client := startServer(t).dial()
	l := makeLayer(8, 12, 40)
	weight, err := client.Upload(ctx, v1.TensorKind_TENSOR_KIND_WEIGHT, l.Weight)
	must(t, err)
	spec := named(weight.GetName(), "")
	first, err := client.Prune(ctx, sparsefw.Layer{Activations: l.Activations}, spec, nil)
	must(t, err)
	spec.Method, spec.Sparsefw = v1.Method_METHOD_SPARSEFW, &v1.SparseFwOptions{Iterations: proto.Int64(10)}
	spec.WarmStart = &v1.WarmStart{RiaExponent: proto.Float64(0.25)}
	second, err := client.Prune(ctx, sparsefw.Layer{Gram: l.Gram_, WarmStart: first.Mask}, spec, nil)
	must(t, err)
	if start := second.Job.GetSpec().GetWarmStart(); start.GetRiaExponent() != 0.25 || start.GetMask() == "" {
		t.Errorf("%v", start)
	}
	_, err = client.GetTensor(ctx, weight.GetName())
	must(t, err)
}

func TestALayerHasOneOfEach(t *testing.T) {
	small, mask := smallLayer(), sparsefw.NewMask(1, 8)
	activations := sparsefw.Float32(1, 8, make([]float32, 8))
	of := func(source *v1.WarmStart) *v1.JobSpec {
		spec := wanda(0.5)
		spec.WarmStart = source
		return spec
	}
	client := dial(t, startFake(t, &fakeServer{}))
	for _, test := range []struct {
		layer sparsefw.Layer
		spec  *v1.JobSpec
		why   string
	}{
		{small, nil, "spec"},
		{sparsefw.Layer{}, wanda(0.5), "give one of Weight, WeightName and the spec's weight; got none"},
		{sparsefw.Layer{Gram: small.Gram}, wanda(0.5), "give one of Weight, WeightName and the spec's weight; got none"},
		{sparsefw.Layer{Weight: small.Weight, WeightName: "tensors/w", Gram: small.Gram}, wanda(0.5), "got Weight and WeightName"},
		{small, named("tensors/w", ""), "got Weight and the spec's weight"},
		{sparsefw.Layer{WeightName: "tensors/w", Gram: small.Gram}, named("tensors/v", ""), "got WeightName and the spec's weight"},
		{sparsefw.Layer{Weight: small.Weight}, wanda(0.5), "give one of Gram, GramName, Activations and the spec's gram; got none"},
		{sparsefw.Layer{Weight: small.Weight, Gram: small.Gram, GramName: "tensors/g"}, wanda(0.5), "got Gram and GramName"},
		{sparsefw.Layer{Weight: small.Weight, Gram: small.Gram, Activations: activations}, wanda(0.5), "got Gram and Activations"},
		{sparsefw.Layer{Weight: small.Weight, GramName: "tensors/g", Activations: activations}, wanda(0.5), "got GramName and Activations"},
		{small, named("", "tensors/g"), "got Gram and the spec's gram"},
		{sparsefw.Layer{Weight: small.Weight, Gram: small.Gram, WarmStart: mask},
			of(&v1.WarmStart{Source: &v1.WarmStart_Mask{Mask: "tensors/m"}}), "give one of WarmStart and the spec's warm_start"},
		{sparsefw.Layer{Weight: small.Weight, Gram: small.Gram, WarmStart: mask},
			of(&v1.WarmStart{Source: &v1.WarmStart_Saliency{Saliency: "tensors/s"}}), "give one of WarmStart and the spec's warm_start"},
		{sparsefw.Layer{Weight: small.Weight, Gram: sparsefw.Float32(8, 8, nil)}, wanda(0.5), "got 0 bytes"},
	} {
		_, err := client.Prune(ctx, test.layer, test.spec, nil)
		if sparsefw.ReasonOf(err) != "CLIENT_ARGUMENT" || !strings.Contains(err.Error(), test.why) {
			t.Errorf("%v, which does not say %q", err, test.why)
		}
	}
}

func TestAWarmStartKeepsWhatTheSpecSaysOfIt(t *testing.T) {
	server := &recorder{}
	client := dial(t, startFake(t, server))
	layer, spec := smallLayer(), wanda(0.5)
	layer.WarmStart = sparsefw.NewMask(1, 8)
	spec.WarmStart = &v1.WarmStart{RiaExponent: proto.Float64(0.25)}
	before := proto.Clone(spec)
	_, err := client.Prune(ctx, layer, spec, nil)
	must(t, err)
	start := server.created.GetSpec().GetWarmStart()
	if start.GetRiaExponent() != 0.25 || start.GetMask() == "" {
		t.Errorf("%v", start)
	}
	if !proto.Equal(spec, before) {
		t.Errorf("the caller's spec has become %v", spec)
	}
	// What starts from the server's own tensors is left as it is.
	layer.WarmStart = nil
	spec.WarmStart.Source = &v1.WarmStart_Saliency{Saliency: "tensors/s"}
	_, err = client.Prune(ctx, layer, spec, nil)
	must(t, err)
	if start := server.created.GetSpec().GetWarmStart(); !proto.Equal(start, spec.WarmStart) {
		t.Errorf("%v", start)
	}
}

// older does not know CheckJobOptions.
type older struct {
	fakeServer
	answer error
}

func (o *older) CheckJobOptions(context.Context, *v1.CheckJobOptionsRequest) (*v1.CheckJobOptionsResponse, error) {
	return nil, o.answer
}

func TestAServerWithoutTheCheckPrunes(t *testing.T) {
	client := dial(t, startFake(t, &older{answer: status.Error(codes.Unimplemented, "unknown method CheckJobOptions")}))
	_, err := client.Prune(ctx, smallLayer(), wanda(0.5), nil)
	must(t, err)
	refusal, err := status.New(codes.Unimplemented, "no such method").WithDetails(&errdetails.ErrorInfo{Reason: "OPTION_INVALID"})
	must(t, err)
	client = dial(t, startFake(t, &older{answer: refusal.Err()}))
	if _, err := client.Prune(ctx, smallLayer(), wanda(0.5), nil); sparsefw.ReasonOf(err) != "OPTION_INVALID" {
		t.Errorf("a refusal: %v", err)
	}
}
