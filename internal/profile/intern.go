package profile

// Intern returns the index of v in a table of distinct values, and appends v if it is new.
// ids has the indexes of all values in the table.
func Intern[V comparable, ID ~int32 | ~int64 | ~uint32 | ~uint64](table *[]V, ids map[V]ID, v V) ID {
	id, ok := ids[v]
	if !ok {
		id = ID(len(*table))
		*table = append(*table, v)
		ids[v] = id
	}
	return id
}
