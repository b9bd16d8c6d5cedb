/* Opens and reads the file that it is given. */
#include <fcntl.h>
#include <unistd.h>

__attribute__((noinline, noclone)) int read_file(const char *path)
{
	char byte;
	int file = open(path, O_RDONLY);

	return file < 0 || read(file, &byte, 1) < 0 || close(file);
}

int main(int argc, char **argv) { return argc != 2 || read_file(argv[1]); }
