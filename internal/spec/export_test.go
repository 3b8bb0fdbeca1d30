package spec

// The two ways of decoding, and the items of lists, for tests that compare them.
var (
	DecodePlainSpec = decodePlainSpec
	DecodeSpecTree  = decodeSpecTree
	HasIdentity     = hasIdentity
	ConditionKey    = (*AliasTarget).conditionKey
)
