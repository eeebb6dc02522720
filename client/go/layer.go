package sparsefw

import (
	"context"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	v1 "github.com/sparsefw/sparsefw/client/go/v1"
)

// Layer is what a job works on. The weight [d_out, d_in] is given, and either the Gram matrix
// [d_in, d_in] or activations [tokens, d_in]; as a matrix, or as the name of a tensor, here or in the job's
// spec. Each is given once.
type Layer struct {
	Weight, Gram, Activations Matrix
	// Tensors of the server, where the layer's are left out. They stay there.
	WeightName, GramName string
	// To start from; may be nil. The spec's warm_start then has no source of its own.
	WarmStart *Mask
}

// source is one way to give a tensor.
type source struct {
	name  string
	given bool
}

func onlyOne(what string, sources ...source) error {
	var names, given []string
	for _, one := range sources {
		names = append(names, one.name)
		if one.given {
			given = append(given, one.name)
		}
	}
	if len(given) == 1 {
		return nil
	}
	got := "none"
	if len(given) > 1 {
		got = strings.Join(given, " and ")
	}
	last := len(names) - 1
	return argument("a job must have one %s: give one of %s and %s; got %s", what,
		strings.Join(names[:last], ", "), names[last], got)
}

// settle puts the names of the layer into the spec. What it then does not name is uploaded.
func (p *pruning) settle() error {
	l, spec := &p.layer, p.spec
	err := onlyOne("weight", source{"Weight", l.Weight.given()}, source{"WeightName", l.WeightName != ""},
		source{"the spec's weight", spec.GetWeight() != ""})
	if err != nil {
		return err
	}
	err = onlyOne("Gram matrix", source{"Gram", l.Gram.given()}, source{"GramName", l.GramName != ""},
		source{"Activations", l.Activations.given()}, source{"the spec's gram", spec.GetGram() != ""})
	if err != nil {
		return err
	}
	if l.WarmStart != nil {
		err = onlyOne("warm start", source{"WarmStart", true},
			source{"the spec's warm_start", spec.GetWarmStart().GetSource() != nil})
	}
	if l.WeightName != "" {
		spec.Weight = l.WeightName
	}
	if l.GramName != "" {
		spec.Gram = l.GramName
	}
	return err
}

// check asks the server before anything is sent.
func (p *pruning) check(ctx context.Context) error {
	l := &p.layer
	request := &v1.CheckJobOptionsRequest{Spec: p.spec}
	if l.Weight.given() {
		if err := l.Weight.check("the weight"); err != nil {
			return err
		}
		request.Weight = l.Weight.spec(v1.TensorKind_TENSOR_KIND_WEIGHT)
	}
	switch {
	case l.Gram.given():
		if err := l.Gram.check("the Gram matrix"); err != nil {
			return err
		}
		request.GramSource = &v1.CheckJobOptionsRequest_Gram{Gram: l.Gram.spec(v1.TensorKind_TENSOR_KIND_GRAM)}
	case l.Activations.given():
		if err := l.Activations.check("the activations"); err != nil {
			return err
		}
		request.GramSource = &v1.CheckJobOptionsRequest_Activations{Activations: &v1.GramSpec{
			DIn: int64(l.Activations.Cols), ActivationDtype: l.Activations.DType,
		}}
	}
	if l.WarmStart != nil {
		if err := l.WarmStart.check("the warm start"); err != nil {
			return err
		}
		request.WarmStart = l.WarmStart.spec()
	}
	err := p.c.CheckJobOptions(ctx, request)
	if status.Code(err) == codes.Unimplemented && ReasonOf(err) == "" {
		return nil // an older server does not know the call: CreateJob will tell
	}
	return err
}
