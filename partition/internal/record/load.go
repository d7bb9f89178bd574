package record

// Load is the load of the slots, as the leader writes it whenever it has changed.
type Load struct {
	Schema  int           `json:"schema"`
	Weights VersionColumn `json:"weights"` // by slot of the largest slot count
	Keys    VersionColumn `json:"keys"`    // of each of these slots
}

// DecodeLoad reads the load of the slots.
func DecodeLoad(data []byte) (Load, error) {
	var v Load
	if err := decode(data, maxMapBytes, &v); err != nil {
		return Load{}, err
	}
	return v, nil
}
