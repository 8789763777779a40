/* Streams of the C library on files. */
#include "check.h"
#include <wchar.h>

int main(int argc, char **argv) {
    CHECK(argc == 3 && chdir(argv[1]) == 0);
    FILE *f = fopen("f", "w+");
    CHECK(f && fprintf(f, "number %d\n", 7) == 9 && fputs("second\n", f) >= 0 && putc('c', f) == 'c');
    CHECK(fileno(f) > 2 && ftell(f) == 17);
    struct stat st;
    CHECK(fflush(f) == 0 && fstat(fileno(f), &st) == 0 && st.st_size == 17);
    rewind(f);
    char line[64];
    int number;
    CHECK(fscanf(f, "number %d\n", &number) == 1 && number == 7);
    CHECK(fgets(line, sizeof line, f) && strcmp(line, "second\n") == 0 && fgetc(f) == 'c' && fgetc(f) == EOF && feof(f));
    CHECK(fseek(f, -3, SEEK_END) == 0 && fgetc(f) == 'd' && ungetc('D', f) == 'D' && fgetc(f) == 'D');
    fpos_t place;
    CHECK(fseeko(f, 0, SEEK_SET) == 0 && fgetpos(f, &place) == 0 && fread(line, 1, 6, f) == 6 && fsetpos(f, &place) == 0 && fgetc(f) == 'n');
    CHECK(fseek(f, 0, SEEK_SET) == 0 && fwrite("N", 1, 1, f) == 1 && fclose(f) == 0);
    f = fopen("f", "r");
    char *text = NULL;
    size_t room = 0;
    CHECK(f && getline(&text, &room, f) == 9 && strcmp(text, "Number 7\n") == 0);
    CHECK(fputc('x', f) == EOF);
    CHECK(fclose(f) == 0);
    f = fopen("f", "a+");
    CHECK(f && ftell(f) >= 0 && fputs("end\n", f) >= 0 && fclose(f) == 0 && stat("f", &st) == 0 && st.st_size == 21);
    CHECK(fopen("f", "wx") == NULL && errno == EEXIST && fopen("nope/f", "r") == NULL && errno == ENOENT);
    CHECK(fopen("f", "q") == NULL && errno == EINVAL);

    int fd = open("f", O_RDWR);
    f = fdopen(fd, "r+");
    CHECK(f && fileno(f) == fd && fgets(line, sizeof line, f));
    f = freopen("g", "w", f);
    CHECK(f && fputs("through freopen\n", f) >= 0 && fclose(f) == 0 && stat("g", &st) == 0 && st.st_size == 16);
    CHECK(fcntl(fd, F_GETFD) == -1);

    f = fopen("big", "w");
    for (int i = 0; i < 100000; i++) CHECK(fprintf(f, "%d\n", i) > 0);
    CHECK(fclose(f) == 0);
    f = fopen("big", "r");
    long sum = 0;
    for (int i = 0; i < 100000; i++) CHECK(fscanf(f, "%d\n", &number) == 1 && (sum += number) >= 0);
    CHECK(sum == 4999950000L && fclose(f) == 0);

    f = fopen("wide", "w");
    CHECK(f && fputws(L"wide one\n", f) >= 0 && putwc(L'x', f) == L'x' && fclose(f) == 0);
    f = fopen("wide", "r");
    wchar_t wide[32];
    CHECK(f && fgetws(wide, 32, f) && wcscmp(wide, L"wide one\n") == 0 && getwc(f) == L'x' && getwc(f) == WEOF && fclose(f) == 0);

    /* Standard output goes to a file of ours half-way. */
    printf("before ");
    int kept = dup(1);
    fd = open("out", O_WRONLY | O_CREAT, 0600);
    CHECK(kept >= 0 && dup2(fd, 1) == 1);
    printf("and after\n");
    puts("puts");
    putchar('!');
    CHECK(fileno(stdout) == 1 && fflush(stdout) == 0 && stat("out", &st) == 0 && st.st_size == 23);
    CHECK(dup2(kept, 1) == 1);
    printf("on standard output again\n");
    fflush(stdout);
    CHECK(stat("out", &st) == 0 && st.st_size == 23);
    CHECK(freopen("out2", "w", stdout) != NULL);
    printf("reopened\n");
    fflush(stdout);
    CHECK(stat("out2", &st) == 0 && st.st_size == 9);
    return 0;
}
