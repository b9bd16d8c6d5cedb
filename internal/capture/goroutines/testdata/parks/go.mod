module parks

go 1.21
