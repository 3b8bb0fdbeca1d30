package decision

const (
	// DefaultBytes bounds a ring where the configuration does not, in bytes. A request takes about 350 bytes, so that it keeps
	// the last 45,000 requests.
	DefaultBytes = 16 << 20
	// segmentBytes is the size of the parts of a ring, in bytes. The oldest part is dropped as a whole.
	segmentBytes = 64 << 10
	// maxRecordBytes bounds one record, in bytes. A state record may be as long as a segment.
	maxRecordBytes = 8 << 10
	// maxTextBytes bounds each text of a record, in bytes. Longer ones are cut.
	maxTextBytes = 256
	// MaxCandidates bounds the candidates of a record: the chosen one and those with the lowest costs.
	MaxCandidates = 4
)
