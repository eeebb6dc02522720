package sparsefw_test

import (
	"context"
	"errors"
	"testing"

	sparsefw "github.com/sparsefw/sparsefw/client/go"
)

func TestADeletionWhoseAnswerIsLostHasWorked(t *testing.T) {
	client := dial(t, startFake(t, &fakeServer{silent: true}), quick())
	for name, remove := range map[string]func(context.Context, string) error{
		"jobs/a": client.DeleteJob, "tensors/a": client.DeleteTensor, "uploads/a": client.DeleteUpload,
	} {
		if err := remove(ctx, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		// What was not there before the first attempt is an error as ever.
		if err := remove(ctx, name); !errors.Is(err, sparsefw.ErrNotFound) {
			t.Errorf("%s a second time: %v", name, err)
		}
	}
}

func TestADeletionThatWasRefusedHasDeletedNothing(t *testing.T) {
	client := dial(t, startFake(t, &fakeServer{drains: true}), quick())
	if err := client.DeleteTensor(ctx, "tensors/a"); !errors.Is(err, sparsefw.ErrNotFound) {
		t.Errorf("%v", err)
	}
}
