package decision

// RecordKind is what a record is about.
type RecordKind uint8

// The events. Their values are part of the file format.
const (
	EventChoice RecordKind = 1 // an endpoint was chosen
	EventRefuse RecordKind = 2 // the request was refused: no endpoint was chosen
	EventEnd    RecordKind = 3 // an attempt, or at a gateway the whole request, has ended
	EventState  RecordKind = 4 // what choices were made from; for the replay
	lastEvent              = EventState
)

// String returns the event as commands print it.
func (e RecordKind) String() string {
	switch e {
	case EventChoice:
		return "choice"
	case EventRefuse:
		return "refused"
	case EventEnd:
		return "end"
	case EventState:
		return "state"
	}
	return "unknown"
}
