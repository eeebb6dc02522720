package sparsefw

import (
	"fmt"
	"strings"

	v1 "github.com/sparsefw/sparsefw/client/go/v1"
)

// Loss of what the job returns (new weights where there are any, else the mask) as a share of pruning
// everything, with the Gram matrix itself.
func (r *Result) Loss() float64 {
	losses := r.Losses()
	if unshrunk := losses.GetUnshrunk(); unshrunk != nil {
		return share(unshrunk.GetResult(), unshrunk.GetFull())
	}
	if losses != nil && losses.Reconstructed != nil {
		return share(losses.GetReconstructed(), losses.GetFull())
	}
	return share(losses.GetMask(), losses.GetFull())
}

// Certificate is the share of the mask's loss that no mask with the same fixed weights avoids: 1 where it is
// optimal, also where it loses nothing; 0 where there is no lower bound.
func (r *Result) Certificate() float64 {
	if r.Losses() == nil {
		return 0
	}
	if !(r.Losses().GetMask() > 0) {
		return 1
	}
	return share(r.Losses().GetLowerBound(), r.Losses().GetMask())
}

// Sparsity is the share of the weights that the mask removes.
func (r *Result) Sparsity() float64 {
	weights := r.weights()
	return share(float64(weights-r.Job.GetResult().GetKeptCount()), float64(weights))
}

// String is what every client says first of a result: loss, reduction, certificate, sparsity.
func (r *Result) String() string {
	losses := r.Losses()
	full, start, end := losses.GetFull(), losses.GetWarmStart(), losses.GetMask()
	note := fmt.Sprintf("|WX - (M*W)X|^2 / |WX|^2; output energy kept: %s", perCent(1-r.Loss()))
	if losses != nil && losses.Reconstructed != nil {
		note = "|WX - W'X|^2 / |WX|^2 with the updated weights W'"
		end = losses.GetReconstructed()
	}
	shrunk := ""
	if unshrunk := losses.GetUnshrunk(); unshrunk != nil {
		full, start, end = unshrunk.GetFull(), unshrunk.GetWarmStart(), unshrunk.GetResult()
		shrunk = " (G shrunk)"
	}
	if !(full > 0) {
		note = "|WX|^2 is 0: weight or activations are only zeros, so no mask is better than another"
	}
	var text strings.Builder
	line := func(name string, value float64, note string) {
		fmt.Fprintf(&text, "%-11s  %10s  %s\n", name, perCent(value), note)
	}
	line("loss", r.Loss(), note)
	if start > end {
		line("reduction", 1-end/start, fmt.Sprintf("below the warm start (%s)", perCent(share(start, full))))
	}
	if bound := losses.GetLowerBound(); bound > 0 {
		line("certificate", r.Certificate(), fmt.Sprintf("unavoidable with these fixed weights: %s of %s%s",
			perCent(share(bound, losses.GetFull())), perCent(share(losses.GetMask(), losses.GetFull())), shrunk))
	}
	weights, kept := r.weights(), r.Job.GetResult().GetKeptCount()
	line("sparsity", r.Sparsity(), fmt.Sprintf("%d of %d weights removed; %d kept", weights-kept, weights, kept))
	if preset := r.Job.GetSpec().GetPreset(); preset != v1.Preset_PRESET_UNSPECIFIED {
		overrides := ""
		if names := r.Job.GetPresetOverrides(); len(names) > 0 {
			overrides = "  overridden by: " + Printable(strings.Join(names, ", "))
		}
		fmt.Fprintf(&text, "%-11s  %10s%s\n", "preset", strings.ToLower(ShortName(preset)), overrides)
	}
	return text.String()
}

func (r *Result) weights() int64 {
	shape := r.Job.GetShape()
	if len(shape) != 2 {
		return 0
	}
	return shape[0] * shape[1]
}

func share(part, whole float64) float64 {
	if whole <= 0 {
		return 0
	}
	return part / whole
}

func perCent(share float64) string { return fmt.Sprintf("%.3f %%", 100*share) }
