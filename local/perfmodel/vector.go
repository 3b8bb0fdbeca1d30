package perfmodel

import "math"

// features is the number of features of a fit: 1 and x.
const features = 2

type (
	vector [features]float64
	matrix [features]vector
)

// dotProduct returns the sum of the products of elements.
func (v *vector) dotProduct(x *vector) float64 { return v[0]*x[0] + v[1]*x[1] }

// invertMatrix returns the inverse of a covariance; ok is false when it has none.
func (v *matrix) invertMatrix() (inv matrix, ok bool) {
	det := v[0][0]*v[1][1] - v[0][1]*v[1][0]
	if !(det > 0) || math.IsInf(det, 0) {
		return inv, false
	}
	return matrix{{v[1][1] / det, -v[0][1] / det}, {-v[1][0] / det, v[0][0] / det}}, true
}
