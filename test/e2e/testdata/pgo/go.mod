module pgoload

go 1.25
