package sparsefw

import (
	v1 "github.com/sparsefw/sparsefw/client/go/v1"
)

// Matrix is a row-major matrix with its values as little-endian bytes.
type Matrix struct {
	DType      v1.DataType
	Rows, Cols int
	Data       []byte
}

// Float32 is a view of rows*cols values; it shares their memory.
func Float32(rows, cols int, values []float32) Matrix {
	return Matrix{v1.DataType_DATA_TYPE_F32, rows, cols, bytesOf(values, 4)}
}

// Float64 is a view, as Float32, for Gram matrices.
func Float64(rows, cols int, values []float64) Matrix {
	return Matrix{v1.DataType_DATA_TYPE_F64, rows, cols, bytesOf(values, 8)}
}

// Float16 is a view of IEEE binary16 bit patterns; see ToFloat16.
func Float16(rows, cols int, bits []uint16) Matrix {
	return Matrix{v1.DataType_DATA_TYPE_F16, rows, cols, bytesOf(bits, 2)}
}

// BFloat16 is a view of bfloat16 bit patterns; see ToBFloat16.
func BFloat16(rows, cols int, bits []uint16) Matrix {
	return Matrix{v1.DataType_DATA_TYPE_BF16, rows, cols, bytesOf(bits, 2)}
}

func elementBytes(dtype v1.DataType) int {
	switch dtype {
	case v1.DataType_DATA_TYPE_F64:
		return 8
	case v1.DataType_DATA_TYPE_F32:
		return 4
	case v1.DataType_DATA_TYPE_F16, v1.DataType_DATA_TYPE_BF16:
		return 2
	}
	return 0
}

func (m Matrix) given() bool { return m.DType != 0 || m.Rows != 0 || m.Cols != 0 || m.Data != nil }

func (m Matrix) check(what string) error {
	size := elementBytes(m.DType)
	if size == 0 {
		return argument("%s must be of dtype F64, F32, F16 or BF16; got %s", what, ShortName(m.DType))
	}
	if total, ok := byteSize(m.spec(0)); !ok || total != int64(len(m.Data)) {
		return argument("%s must be %d x %d values of %d bytes; got %d bytes", what, m.Rows, m.Cols, size,
			len(m.Data))
	}
	return nil
}

func (m Matrix) shape() []int64 { return []int64{int64(m.Rows), int64(m.Cols)} }

func (m Matrix) spec(kind v1.TensorKind) *v1.TensorSpec {
	return &v1.TensorSpec{Kind: kind, Dtype: m.DType, Dims: m.shape()}
}

// Values converts F32, F16 and BF16 exactly; F64 is rounded.
func (m Matrix) Values() []float32 {
	values := make([]float32, m.Rows*m.Cols)
	for i := range values {
		switch m.DType {
		case v1.DataType_DATA_TYPE_F32:
			values[i] = float32At(m.Data, i)
		case v1.DataType_DATA_TYPE_F64:
			values[i] = float32(float64At(m.Data, i))
		case v1.DataType_DATA_TYPE_F16:
			values[i] = FromFloat16(uint16At(m.Data, i))
		case v1.DataType_DATA_TYPE_BF16:
			values[i] = FromBFloat16(uint16At(m.Data, i))
		}
	}
	return values
}

// PerRow keeps d_in - floor(d_in*sparsity) weights of each row.
func PerRow(sparsity float64) *v1.Pattern {
	return &v1.Pattern{Kind: &v1.Pattern_PerRow_{PerRow: &v1.Pattern_PerRow{Sparsity: &sparsity}}}
}

// Unstructured keeps d_out*d_in - floor(d_out*d_in*sparsity) weights of the matrix.
func Unstructured(sparsity float64) *v1.Pattern {
	return &v1.Pattern{
		Kind: &v1.Pattern_Unstructured_{Unstructured: &v1.Pattern_Unstructured{Sparsity: &sparsity}},
	}
}

// KeepOfGroup keeps `keep` of every `group` consecutive inputs of a row: 2:4 is KeepOfGroup(2, 4).
func KeepOfGroup(keep, group int) *v1.Pattern {
	return &v1.Pattern{
		Kind: &v1.Pattern_Nm{Nm: &v1.Pattern_KeepOfGroup{Keep: int32(keep), Group: int32(group)}},
	}
}
