// Package sparsefw is the client of the SparseFW pruning server: it uploads weights and Gram
// matrices (or the activations they are summed from), runs jobs and reads masks back.
//
//	client, err := sparsefw.Dial(ctx, "127.0.0.1:50051")
//	if err != nil { ... }
//	defer client.Close()
//	result, err := client.Prune(ctx, sparsefw.Layer{
//		Weight:      sparsefw.Float32(dOut, dIn, weight),
//		Activations: sparsefw.Float32(tokens, dIn, activations),
//	}, &v1.JobSpec{Method: v1.Method_METHOD_SPARSEFW, Pattern: sparsefw.PerRow(0.6)})
//	if err != nil { ... }
//	keep := result.Mask.Keep(row, col)
//
// Calls are repeated with back-off while the server cannot be reached, uploads go on at the last
// byte that the server has on its disk, and watches at the last revision seen: a restart of the
// server costs nothing. Every call ends with its context. Errors of the server are *Error, with
// code, reason and metadata; docs/errors.md of the project lists the reasons.
//
// A Client may be used by several goroutines at once.
package sparsefw
