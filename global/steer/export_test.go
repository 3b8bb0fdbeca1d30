package steer

// EncodeAny also encodes plans that EncodePlan refuses.
var EncodeAny = encodeUnchecked
