// Prunes one layer of a safetensors file: the weight "weight" and the activations "activations".
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	sparsefw "github.com/sparsefw/sparsefw/client/go"
	"github.com/sparsefw/sparsefw/client/go/safetensors"
	v1 "github.com/sparsefw/sparsefw/client/go/v1"
)

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: prune_layer SERVER IN.safetensors OUT.safetensors")
	}
	if err := run(context.Background(), os.Args[1], os.Args[2], os.Args[3]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, server, in, out string) error {
	client, err := sparsefw.Dial(ctx, server)
	if err != nil {
		return err
	}
	defer client.Close()
	weight, err := load(in, "weight")
	if err != nil {
		return err
	}
	activations, err := load(in, "activations")
	if err != nil {
		return err
	}
	result, err := client.Prune(ctx, sparsefw.Layer{Weight: weight, Activations: activations},
		&v1.JobSpec{
			Method: v1.Method_METHOD_SPARSEFW, Pattern: sparsefw.PerRow(0.6), ReturnPrunedWeight: true,
		}, nil)
	if err != nil {
		return err
	}
	if _, err := fmt.Print(result); err != nil {
		return err
	}
	return safetensors.Write(out, []safetensors.Tensor{{
		Name: "weight", DType: sparsefw.ShortName(result.Weight.DType),
		Shape: []int64{int64(weight.Rows), int64(weight.Cols)}, Data: result.Weight.Data,
	}}, nil)
}

func load(path, name string) (sparsefw.Matrix, error) {
	file, err := safetensors.Open(path)
	if err != nil {
		return sparsefw.Matrix{}, err
	}
	defer file.Close()
	tensor, err := file.Read(name)
	if err != nil {
		return sparsefw.Matrix{}, err
	}
	if len(tensor.Shape) != 2 {
		return sparsefw.Matrix{}, fmt.Errorf("%s: %s must be a matrix; got shape %v", path, name, tensor.Shape)
	}
	return sparsefw.Matrix{
		DType: v1.DataType(v1.DataType_value["DATA_TYPE_"+tensor.DType]),
		Rows:  int(tensor.Shape[0]), Cols: int(tensor.Shape[1]), Data: tensor.Data,
	}, nil
}
