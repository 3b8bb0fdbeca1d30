package steer

// EncodeAny writes also what Encode refuses.
var EncodeAny = encode
