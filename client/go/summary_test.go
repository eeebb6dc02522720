package sparsefw

import (
	"strings"
	"testing"

	v1 "github.com/sparsefw/sparsefw/client/go/v1"
)

func result() *Result {
	return &Result{Job: &v1.Job{Shape: []int64{10, 20}, Result: &v1.JobResult{
		KeptCount: 80,
		Losses:    &v1.Losses{Full: 1000, WarmStart: 200, Mask: 150.5, LowerBound: 140},
	}}}
}

func TestAResultReadsAsInTheOtherClients(t *testing.T) {
	want := "loss           15.050 %  |WX - (M*W)X|^2 / |WX|^2; output energy kept: 84.950 %\n" +
		"reduction      24.750 %  below the warm start (20.000 %)\n" +
		"certificate    93.023 %  unavoidable with these fixed weights: 14.000 % of 15.050 %\n" +
		"sparsity       60.000 %  120 of 200 weights removed; 80 kept\n"
	if got := result().String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestTheLossIsOfNewWeightsAndOfTheGramMatrixItself(t *testing.T) {
	r := result()
	reconstructed := 50.0
	losses := r.Job.Result.Losses
	losses.Reconstructed, losses.LowerBound = &reconstructed, 0
	want := "loss            5.000 %  |WX - W'X|^2 / |WX|^2 with the updated weights W'\n" +
		"reduction      75.000 %  below the warm start (20.000 %)\n" +
		"sparsity       60.000 %  120 of 200 weights removed; 80 kept\n"
	if got := r.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	losses.Unshrunk = &v1.Losses_Unshrunk{Full: 900, WarmStart: 180, Result: 90}
	if r.Loss() != 0.1 || r.Certificate() != 0 {
		t.Errorf("got loss %g, certificate %g", r.Loss(), r.Certificate())
	}
}

func TestALayerOfZerosHasNoLossToDivideBy(t *testing.T) {
	r := &Result{Job: &v1.Job{Result: &v1.JobResult{Losses: &v1.Losses{}}}}
	if r.Loss() != 0 || r.Sparsity() != 0 || !strings.Contains(r.String(), "|WX|^2 is 0: weight or activations") {
		t.Errorf("got %q", r)
	}
}

func TestAResultWithoutLossesIsNoPanic(t *testing.T) {
	r := &Result{Job: &v1.Job{Result: &v1.JobResult{}}}
	if r.Loss() != 0 || !strings.Contains(r.String(), "loss") {
		t.Errorf("got %q", r)
	}
}

func TestWhetherThereIsALossIsOfTheGramMatrixItself(t *testing.T) {
	const zero = "|WX|^2 is 0"
	r := result()
	r.Job.Result.Losses.Unshrunk = &v1.Losses_Unshrunk{}
	if got := r.String(); !strings.Contains(got, zero) {
		t.Errorf("got\n%s", got)
	}
	r.Job.Result.Losses.Full = 0
	r.Job.Result.Losses.Unshrunk = &v1.Losses_Unshrunk{Full: 900, WarmStart: 180, Result: 90}
	if got := r.String(); strings.Contains(got, zero) {
		t.Errorf("got\n%s", got)
	}
}

func TestWhatWinsOverAPresetIsSaid(t *testing.T) {
	r := result()
	r.Job.Spec = &v1.JobSpec{Preset: v1.Preset_PRESET_FAST}
	if got := r.String(); !strings.HasSuffix(got, "\npreset             fast\n") {
		t.Errorf("got\n%s", got)
	}
	r.Job.PresetOverrides = []string{"method", "alpha"}
	if got := r.String(); !strings.HasSuffix(got, "fast  overridden by: method, alpha\n") {
		t.Errorf("got\n%s", got)
	}
}

func TestAMaskThatLosesNothingIsCertified(t *testing.T) {
	r := result()
	losses := r.Job.Result.Losses
	losses.Mask, losses.LowerBound = 0, 0
	if got := r.Certificate(); got != 1 { // as in Python
		t.Errorf("got %g", got)
	}
	losses.Mask = 150.5
	if got := r.Certificate(); got != 0 {
		t.Errorf("got %g without a lower bound", got)
	}
}
