package sparsefw

import (
	"math/bits"

	v1 "github.com/sparsefw/sparsefw/client/go/v1"
)

// Mask is a binary mask [Rows, Cols], one bit a weight: 1 keeps it. Each row begins on a byte, its
// first weight in the least significant bit.
type Mask struct {
	Rows, Cols int
	Bits       []byte
}

func (m *Mask) rowBytes() int { return (m.Cols + 7) / 8 }

func (m *Mask) spec() *v1.TensorSpec {
	return &v1.TensorSpec{
		Kind: v1.TensorKind_TENSOR_KIND_MASK, Dtype: v1.DataType_DATA_TYPE_U1,
		Dims: []int64{int64(m.Rows), int64(m.Cols)},
	}
}

func (m *Mask) check(what string) error {
	if total, ok := byteSize(m.spec()); !ok || total != int64(len(m.Bits)) {
		return argument("%s must be %d x %d bits, each row of whole bytes; got %d bytes", what, m.Rows, m.Cols,
			len(m.Bits))
	}
	return nil
}

// NewMask removes every weight.
func NewMask(rows, cols int) *Mask {
	return &Mask{rows, cols, make([]byte, rows*((cols+7)/8))}
}

// Keep says whether the weight stays.
func (m *Mask) Keep(row, col int) bool {
	return m.Bits[row*m.rowBytes()+col/8]>>(col%8)&1 == 1
}

// Set keeps the weight or removes it.
func (m *Mask) Set(row, col int, keep bool) {
	at, bit := row*m.rowBytes()+col/8, byte(1)<<(col%8)
	if keep {
		m.Bits[at] |= bit
	} else {
		m.Bits[at] &^= bit
	}
}

// Count is the number of weights that stay.
func (m *Mask) Count() int {
	count := 0
	for _, b := range m.Bits {
		count += bits.OnesCount8(b)
	}
	return count
}

// Bools is one value a weight, row by row.
func (m *Mask) Bools() []bool {
	values := make([]bool, 0, m.Rows*m.Cols)
	for row := 0; row < m.Rows; row++ {
		for col := 0; col < m.Cols; col++ {
			values = append(values, m.Keep(row, col))
		}
	}
	return values
}

// Apply sets the removed weights of a row-major matrix of the mask's shape to zero.
func Apply[T float32 | float64 | uint16](m *Mask, values []T) error {
	if len(values) != m.Rows*m.Cols {
		return argument("values must be %d x %d; got %d", m.Rows, m.Cols, len(values))
	}
	for row := 0; row < m.Rows; row++ {
		for col := 0; col < m.Cols; col++ {
			if !m.Keep(row, col) {
				values[row*m.Cols+col] = 0
			}
		}
	}
	return nil
}
