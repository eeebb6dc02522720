package sparsefw_test

import (
	"errors"
	"reflect"
	"testing"
	"time"

	sparsefw "github.com/sparsefw/sparsefw/client/go"
)

// A client that gives up on a lost connection at once.
func impatient() sparsefw.Option {
	return sparsefw.WithRetry(sparsefw.RetryPolicy{
		Initial: time.Millisecond, Max: time.Millisecond, Multiplier: 1, GiveUpAfter: time.Millisecond,
	})
}

func smallLayer() sparsefw.Layer {
	return sparsefw.Layer{
		Weight: sparsefw.Float32(1, 8, make([]float32, 8)), Gram: sparsefw.Float32(8, 8, make([]float32, 64)),
	}
}

func TestANamedPruneCanBeRepeatedAfterALostConnection(t *testing.T) {
	for _, method := range []string{"WatchJob", "ReadTensor"} { // while it runs, while its mask is read
		fake := &fakeServer{}
		client := dial(t, startFake(t, fake), impatient())
		named := sparsefw.WithRequestID("layer")
		fake.lose(method)
		_, err := client.Prune(ctx, smallLayer(), wanda(0.5), nil, named)
		if !errors.Is(err, sparsefw.ErrUnavailable) {
			t.Errorf("%s: %v", method, err)
		}
		if removed := fake.all(); len(removed) > 0 {
			t.Errorf("%s: the same call needs %v, which is gone", method, removed)
		}
		fake.lose()
		result, err := client.Prune(ctx, smallLayer(), wanda(0.5), nil, named)
		must(t, err)
		if result.Mask.Count() != 4 {
			t.Errorf("%s: %d kept", method, result.Mask.Count())
		}
		want := []string{"tensors/layer/weight", "tensors/layer/gram"}
		if removed := fake.all(); !reflect.DeepEqual(removed, want) {
			t.Errorf("%s: removed at the end: %v", method, removed)
		}
	}
}

func TestAPruneWithoutANameLeavesNothing(t *testing.T) {
	fake := &fakeServer{}
	client := dial(t, startFake(t, fake), impatient())
	fake.lose("WatchJob")
	_, err := client.Prune(ctx, smallLayer(), wanda(0.5), nil)
	if !errors.Is(err, sparsefw.ErrUnavailable) {
		t.Error(err)
	}
	if removed := fake.all(); len(removed) != 3 || removed[0] != "jobs/one" {
		t.Errorf("removed: %v", removed)
	}
}
