module gooracle

go 1.18
