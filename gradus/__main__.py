from gradus.cli import main

main()
